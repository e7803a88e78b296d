-- /// tw
-- kind    = "format"
-- name    = "rocprofv3_gpus"
-- version = 1
-- summary = "rocprofv3: the numbers of the GPUs that tables of records name, and what is known of each."
--
-- [tables.agents]
-- optional = ["Agent_Type VARCHAR", "Logical_Node_Id", "Node_Id", "Product_Name VARCHAR", "Name VARCHAR"]
--
-- [tables.kernel_dispatch]
-- optional = ["Agent_Id VARCHAR", "Kernel_Name VARCHAR"]
--
-- [tables.memory_copy]
-- optional = ["Source_Agent_Id VARCHAR", "Destination_Agent_Id VARCHAR", "Direction VARCHAR"]
--
-- [changes]
-- 1 = "First version."
-- ///
-- An agent is named by its number among those that the process sees, among all, or among the GPUs. Without a list of
-- agents, the GPUs are those that run kernels, and the sides of copies that are devices.
WITH named AS (
  SELECT
    TRY_CAST(regexp_extract(label, '^(?:(?:Agent|GPU)[ -]?)?(-?[0-9]{1,18})$', 1) AS BIGINT) AS handle,
    starts_with(label, 'GPU') AS is_of_gpus
  FROM (
    SELECT DISTINCT Agent_Id AS label FROM kernel_dispatch WHERE Kernel_Name IS NOT NULL
    UNION
    SELECT DISTINCT Source_Agent_Id FROM memory_copy WHERE contains(Direction, 'DEVICE_TO')
    UNION
    SELECT DISTINCT Destination_Agent_Id FROM memory_copy WHERE contains(Direction, 'TO_DEVICE')
  )
),
listed AS (
  SELECT row_number() OVER (ORDER BY file_row) - 1 AS number, Logical_Node_Id, Node_Id, coalesce(nullif(Product_Name, ''), Name) AS name
  FROM agents WHERE Agent_Type = 'GPU'
),
used AS (
  SELECT
    coalesce(bool_or(is_of_gpus), FALSE) AS of_gpus,
    coalesce(bool_and(handle IS NULL OR handle IN (SELECT Logical_Node_Id FROM listed WHERE Logical_Node_Id IS NOT NULL)), TRUE) AS are_logical,
    coalesce(bool_and(handle IS NULL OR handle IN (SELECT Node_Id FROM listed WHERE Node_Id IS NOT NULL)), TRUE) AS are_nodes
  FROM named
)
SELECT
  number, if(of_gpus, number, if(are_logical OR NOT are_nodes, Logical_Node_Id, Node_Id)) AS handle,
  {'id': number, 'name': name} AS device
FROM listed, used
UNION ALL
SELECT if(of_gpus, handle, row_number() OVER (ORDER BY handle) - 1), handle, NULL
FROM (SELECT DISTINCT handle FROM named WHERE handle IS NOT NULL), used
WHERE NOT EXISTS (FROM listed)
ORDER BY number
