"""Resource pools as a gateway keeps them: in the transport's store alone, so that any gateway may end."""
