"""The memory timeline of torch.profiler, as export_memory_timeline writes it into a .raw.json.gz file."""

from tracewarehouse.formats.memory_timeline.format import MemoryTimelineFormat

__all__ = ["MemoryTimelineFormat"]
