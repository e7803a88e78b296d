"""Files and folders to a published version of a run."""
