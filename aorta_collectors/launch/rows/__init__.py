"""The table of launchers, by kind: one row a launcher, with the place where its options were read."""
