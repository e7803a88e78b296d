-- /// tw
-- kind     = "view"
-- name     = "source_frames"
-- version  = 1
-- summary  = "Python frames of the program and of its libraries: without those of PyTorch and of the standard library."
-- requires = ["events@1"]
-- grain    = ["run_id", "rank", "event_id"]
-- order    = ["run_id", "rank", "pre"]
--
-- [columns]
-- run_id   = { type = "VARCHAR", doc = "The run." }
-- rank     = { type = "INTEGER", doc = "The rank." }
-- event_id = { type = "BIGINT", unit = "id", doc = "The frame." }
-- source   = { type = "VARCHAR", doc = "File, line where the function begins, and function: `train.py:120 main`." }
-- is_library = { type = "BOOLEAN", doc = "The file is one of an installed package (transformers, vllm, …), not of the program." }
-- pre      = { type = "BIGINT", unit = "id", doc = "Position in nesting order (preorder) over the rank." }
-- post     = { type = "BIGINT", unit = "id", doc = "Position of its last descendant: for descendants, pre < theirs <= post." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT
  run_id,
  rank,
  event_id,
  regexp_replace(name, '^(.*)\((\d+)\): (.*)$', '\1:\2 \3') AS source,
  regexp_matches(name, '(^|/)(torchvision|lightning|transformers|vllm|sglang)/|(site|dist)-packages') AS is_library,
  pre,
  post
FROM events
WHERE
  category = 'python_function'
  AND pre IS NOT NULL
  AND regexp_matches(name, '^[^<].*\.py\(\d+\): ')
  AND NOT regexp_matches(name, '(^|/)torch/|(^|/)(threading|runpy|contextlib|inspect|functools)\.py')
  AND (NOT regexp_matches(name, '/lib/python\d') OR regexp_matches(name, '(site|dist)-packages'))
