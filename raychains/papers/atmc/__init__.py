"""ATMC and ResNet++ (Heek & Kalchbrenner 2019)."""
