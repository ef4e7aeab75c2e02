"""How gateways and workers follow the config service: deltas over the queue, epochs and exports over HTTP."""
