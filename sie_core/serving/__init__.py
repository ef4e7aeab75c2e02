"""The shell every program serves HTTP in: connections, listening sockets, drain, signals."""
