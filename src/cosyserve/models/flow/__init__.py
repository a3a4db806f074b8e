"""Flow matching: speech tokens and a speaker in, mel frames out."""
