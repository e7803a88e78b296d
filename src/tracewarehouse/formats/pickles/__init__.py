"""Reading of pickles from untrusted files: plain values only, in a limited child process."""
