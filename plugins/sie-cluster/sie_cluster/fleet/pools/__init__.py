"""Resource pools: capacity that clients lease, and which worker belongs to which of them."""
