"""The whole tool on whole programs: real models, real commands, and what they leave behind."""
