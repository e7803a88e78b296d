-- /// tw
-- kind      = "table"
-- name      = "categories"
-- version   = 1
-- summary   = "Event categories: spelling in the file, current Kineto spelling, and role."
-- grain     = ["raw_category"]
-- order     = ["role", "category", "raw_category"]
-- transient = true
--
-- [columns]
-- raw_category = { type = "VARCHAR", doc = "Category as in the file." }
-- category     = { type = "VARCHAR", doc = "Spelling of current Kineto." }
-- role         = { type = "VARCHAR", doc = "device (GPU activity), runtime (a call that can launch), operator, frame, annotation, other_process (annotation of a process that belongs to no rank), host (any other slice of a thread), sync, device_annotation, device_range, device_event (marker on a stream, no work), instant, counter, flow or span." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  raw_category,
  category,
  role
FROM (
  VALUES
    ('kernel', 'kernel', 'device'),
    ('Kernel', 'kernel', 'device'),
    ('gpu_memcpy', 'gpu_memcpy', 'device'),
    ('Memcpy', 'gpu_memcpy', 'device'),
    ('gpu_memset', 'gpu_memset', 'device'),
    ('Memset', 'gpu_memset', 'device'),
    ('mtia_ccp_events', 'mtia_ccp_events', 'device'),
    ('cuda_runtime', 'cuda_runtime', 'runtime'),
    ('Runtime', 'cuda_runtime', 'runtime'),
    ('cuda_driver', 'cuda_driver', 'runtime'),
    ('mtia_runtime', 'mtia_runtime', 'runtime'),
    ('xpu_runtime', 'xpu_runtime', 'runtime'),
    ('xpu_driver', 'xpu_driver', 'runtime'),
    ('glow_runtime', 'glow_runtime', 'runtime'),
    ('privateuse1_runtime', 'privateuse1_runtime', 'runtime'),
    ('privateuse1_driver', 'privateuse1_driver', 'runtime'),
    ('cpu_op', 'cpu_op', 'operator'),
    ('Operator', 'cpu_op', 'operator'),
    ('python_function', 'python_function', 'frame'),
    ('user_annotation', 'user_annotation', 'annotation'),
    ('collective_comm', 'user_annotation', 'annotation'),
    ('process_annotation', 'process_annotation', 'other_process'),
    ('gpu_user_annotation', 'gpu_user_annotation', 'device_annotation'),
    ('cuda_profiler_range', 'cuda_profiler_range', 'device_range'),
    ('cuda_event', 'cuda_event', 'device_event'),
    ('cuda_sync', 'cuda_sync', 'sync'),
    ('xpu_sync', 'xpu_sync', 'sync'),
    ('cpu_instant_event', 'cpu_instant_event', 'instant'),
    ('overhead', 'overhead', 'host'),
    ('os_runtime', 'os_runtime', 'host'),
    ('mpi', 'mpi', 'host'),
    ('library', 'library', 'host'),
    ('hsa_api', 'hsa_api', 'host'),
    ('enqueue', 'enqueue', 'host'),
    ('dequeue', 'dequeue', 'host'),
    ('hardware_counters', 'hardware_counters', 'counter'),
    ('mtia_counters', 'mtia_counters', 'counter'),
    ('Trace', 'Trace', 'span'),
    ('ac2g', 'ac2g', 'flow'),
    ('async', 'ac2g', 'flow'),
    ('async_gpu', 'ac2g', 'flow'),
    ('async_cpu_to_gpu', 'ac2g', 'flow'),
    ('HostToDevice', 'ac2g', 'flow'),
    ('api_op', 'ac2g', 'flow'),
    ('fwdbwd', 'fwdbwd', 'flow'),
    ('async_npu', 'async_npu', 'flow'),
    ('async_task_queue', 'async_task_queue', 'flow'),
    ('critical_path', 'critical_path', 'flow')
) AS known (raw_category, category, role)
