"""Pages that a person opens from disk: one self-contained HTML file, and the plots that go into metadata, too."""
