"""One device and many who wait for it: who may still queue, whose batch is next, and how long it will take. Pure."""
