"""Image sets prepared for streaming: parquet shards of JPEG bytes under a manifest, read by a plan, cropped by
counters."""
