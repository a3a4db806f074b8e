"""What a GPU replays as CUDA graphs, and the streams that it is launched on."""
