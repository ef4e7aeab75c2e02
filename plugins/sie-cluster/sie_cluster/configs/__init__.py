"""How gateways and workers follow the config service: deltas over the queue, exports over HTTP, a snapshot kept."""
