"""Where spans come from that are no calls of modules: each source stands around functions of a library."""
