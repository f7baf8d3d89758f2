"""One cell of every experiment, recomputed without raychains: numpy, pyarrow and safetensors on what lies in the store.

``check(folder, store, seed)`` of a module gives (stored value, recomputed value) of a cell or point drawn by the seed.
"""
