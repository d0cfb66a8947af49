"""Real captures for the tests of all that reads them, and ones made up value by value."""
