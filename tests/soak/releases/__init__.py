"""Two releases in one cluster: every program is replaced by that of the other release under load, in every order."""
