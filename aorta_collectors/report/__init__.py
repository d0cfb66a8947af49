"""What a person looks at: tables and charts in a terminal, and one HTML file. No arguments, no paths, no asking."""
