-- /// tw
-- kind     = "view"
-- name     = "source_frames"
-- version  = 1
-- summary  = "Python frames of the program's code: without those of PyTorch, of the standard library and of installed packages."
-- requires = ["events@1"]
-- grain    = ["run_id", "rank", "event_id"]
-- order    = ["run_id", "rank", "pre"]
--
-- [columns]
-- run_id   = { type = "VARCHAR", doc = "The run." }
-- rank     = { type = "INTEGER", doc = "The rank." }
-- event_id = { type = "BIGINT", unit = "id", doc = "The frame." }
-- source   = { type = "VARCHAR", doc = "File and line, then the function: `train.py:120 main`." }
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
  pre,
  post
FROM events
WHERE
  category = 'python_function'
  AND pre IS NOT NULL
  AND regexp_matches(name, '^[^<].*\.py\(\d+\): ')
  AND NOT regexp_matches(name, '(^|/)(torch|torchvision|lightning|transformers|vllm|sglang)/|(site|dist)-packages|/lib/python\d|(^|/)(threading|runpy|contextlib|inspect|functools)\.py')
