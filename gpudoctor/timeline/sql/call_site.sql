-- call_site: the user's line behind a call, and whether a library made the call on its own account.
-- Frames of Python itself, of torch and of well-known packages are not the user's. Kineto gives a function's first line.
CREATE OR REPLACE TABLE call_site AS
WITH frame AS (
    SELECT rank, corr, depth, file, line, func,
        file IS NULL OR file = '' OR starts_with(file, '<')
            OR regexp_matches(file, '(^|/)(site-packages|dist-packages|lib/python3[^/]*|frozen [^/]*)/')
            OR regexp_matches(file, '^(torch|torchvision|torchaudio|triton|numpy|accelerate|transformers|lightning|lightning_fabric|pytorch_lightning|deepspeed|apex|tqdm|datasets|timm|importlib|concurrent|multiprocessing|asyncio|logging|json|collections|unittest|ctypes|encodings)/')
            OR regexp_matches(file, '^(typing|contextlib|functools|threading|queue|runpy|inspect|warnings|weakref|enum|copy|abc|os|random|re|time|types|abc|dataclasses|traceback|selectors|socket|subprocess|signal|shutil|tempfile|pickle|struct|heapq|bisect|string|io|codecs|operator|itertools|numbers|tokenize|linecache|posixpath|genericpath)\.py$')
            OR starts_with(func, '<built-in') AS library
    FROM pystack
)
SELECT rank, corr,
    arg_min(file, depth) FILTER (NOT library) AS path,
    arg_min(line, depth) FILTER (NOT library) AS line,
    arg_min(func, depth) FILTER (NOT library) AS func,
    arg_min(file || ':' || func, depth) FILTER (library AND file IS NOT NULL AND NOT starts_with(file, '<') AND NOT starts_with(func, '<')) AS callee,
    regexp_matches(coalesce(arg_min(file || ':' || func, depth) FILTER (file IS NOT NULL AND file <> '' AND NOT starts_with(file, '<') AND NOT starts_with(func, '<built-in')), ''),
        '(^|/)torch/(optim/|utils/data/|nn/parallel/|distributed/|profiler/|autograd/profiler|amp/grad_scaler\.py:([^g]|g[^e]))|(^|/)(accelerate|deepspeed|transformers)/') AS by_library
FROM frame GROUP BY rank, corr;
