"""What families of generating torch models share: reading prompts, attention by sequence, choosing tokens, text."""
