"""Parts of blocks as bytes in one agreed order, on the CPU and on GPUs."""
