"""What `infinity embed`, `rerank` and `classify` share: files through a model, resumed where they were killed."""
