"""Storage that misbehaves: a real S3 protocol behind a proxy that fails, and filesystems that do."""
