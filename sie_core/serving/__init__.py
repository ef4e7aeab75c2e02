"""The shell of every program that serves HTTP: the server, its connections, the listening socket, drain and signals."""
