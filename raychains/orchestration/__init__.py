"""The only room that imports Ray: workers, the coordinator's shell, the sample pool, the evaluators."""

import os

# Ray ends a process a minute after its GCS died, if a request hangs that long; `ray_watch` notices it before, and the
# process goes on. Ray reads this once, when it is imported.
os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", "1000000")
