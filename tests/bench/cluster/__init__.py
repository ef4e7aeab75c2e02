"""What a cluster costs beside the standalone server: added latency, and CPU by process. The fake family computes."""
