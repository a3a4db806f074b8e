"""Flow matching: speech tokens and a speaker in, mel frames out."""

from cosyserve.models.flow.flow import Flow, FlowBatch, FlowCache, FlowPrompt, FlowState

__all__ = ["Flow", "FlowBatch", "FlowCache", "FlowPrompt", "FlowState"]
