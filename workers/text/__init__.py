"""What models of text share: tokens in, vectors out."""
