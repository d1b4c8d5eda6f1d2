"""A user's program -> cases: run the script unedited, watch every region it compiles, write down the one that fails."""
