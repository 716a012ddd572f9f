-- kind_of_name: what each kernel, call or range is, judged once by its name.
-- AMD's names count as their CUDA twins; comm kernels without a known name are found by the ingest, not here.
CREATE OR REPLACE TABLE kind_of_name AS
WITH plain AS (
    SELECT name_id, text, lower(text) AS low,
        regexp_replace(regexp_replace(text, '^hip', 'cuda'), '(_v\d+|_ptsz|_ptds)+$', '') AS call
    FROM name
)
SELECT name_id, text,
    CASE
        WHEN call IN ('cudaDeviceSynchronize', 'cuCtxSynchronize', 'cudaThreadSynchronize') THEN 'device_sync'
        WHEN call IN ('cudaStreamSynchronize', 'cuStreamSynchronize') THEN 'stream_sync'
        WHEN call IN ('cudaEventSynchronize', 'cuEventSynchronize') THEN 'event_sync'
        WHEN call IN ('cudaEventQuery', 'cuEventQuery', 'cudaStreamQuery', 'cuStreamQuery') THEN 'query'
        WHEN call IN ('cudaStreamWaitEvent', 'cuStreamWaitEvent') THEN 'stream_wait'
        WHEN call IN ('cudaEventRecord', 'cuEventRecord', 'cudaEventRecordWithFlags', 'cuEventRecordWithFlags') THEN 'event_record'
        WHEN regexp_matches(call, '^(cudaMalloc(Async|FromPoolAsync)|cuMemAlloc(FromPool)?Async)$') THEN 'pool_alloc'
        WHEN regexp_matches(call, '^(cudaFreeAsync|cuMemFreeAsync)$') THEN 'pool_free'
        WHEN regexp_matches(call, '^(cudaMallocHost|cudaHostAlloc|cuMemHostAlloc|cuMemAllocHost|cudaHostMalloc|cudaHostRegister)$') THEN 'host_alloc'
        WHEN regexp_matches(call, '^(cudaFreeHost|cudaHostFree|cuMemFreeHost|cudaHostUnregister)$') THEN 'host_free'
        WHEN regexp_matches(call, '^(cudaMalloc(Pitch|3D|Managed|Array|3DArray)?|cuMemAlloc(Pitch|Managed)?)$') THEN 'alloc'
        WHEN call IN ('cudaFree', 'cuMemFree', 'cudaFreeArray') THEN 'free'
        WHEN call IN ('cuMemCreate', 'cuMemMap') THEN 'map'
        WHEN call IN ('cuMemUnmap', 'cuMemRelease') THEN 'unmap'
        WHEN regexp_matches(call, '^(cudaGraphLaunch|cuGraphLaunch)$') THEN 'graph_launch'
        WHEN regexp_matches(call, '^(cudaLaunch|cuLaunch|cudaExtLaunch|cudaModuleLaunch|cudaExtModuleLaunch)') THEN 'launch'
        WHEN regexp_matches(call, '^(cudaMemcpy|cuMemcpy).*Async$') THEN 'memcpy_async'
        WHEN regexp_matches(call, '^(cudaMemcpy|cuMemcpy)') THEN 'memcpy'
        WHEN regexp_matches(call, '^(cudaMemset|cuMemset).*Async$') THEN 'memset_async'
        WHEN regexp_matches(call, '^(cudaMemset|cuMemset)') THEN 'memset'
        WHEN regexp_matches(call, '^(cudaStreamCreate|cuStreamCreate)') THEN 'stream_create'
        WHEN regexp_matches(call, '^(cudaStreamDestroy|cuStreamDestroy)') THEN 'stream_destroy'
    END AS call_kind,
    CASE
        WHEN regexp_matches(low, 'all_?reduce') THEN 'all_reduce'
        WHEN regexp_matches(low, 'reduce_?scatter') THEN 'reduce_scatter'
        WHEN regexp_matches(low, 'all_?gather') THEN 'all_gather'
        WHEN regexp_matches(low, 'all_?to_?all') THEN 'all_to_all'
        WHEN regexp_matches(low, 'broadcast') THEN 'broadcast'
        WHEN regexp_matches(low, 'send_?recv|ncclsend|ncclrecv') THEN 'send_recv'
        WHEN regexp_matches(low, 'reduce') THEN 'reduce'
    END AS op,
    regexp_matches(low, 'optimi[sz]er|adamw?(_|\b|f32|functor|math)|fused_?(adam|sgd|lamb)|lamb_stage|multi_tensor.*(adam|sgd|lamb|momentum)|sgd_momentum')
        AND NOT contains(low, 'zero_grad') AS optimizer,
    regexp_matches(low, '(^|[^a-z])data_?load(er|ing)?([^a-z]|$)|__next__|^next_?batch|^get_?batch|fetch_?(data|batch)|^load_?(batch|data)|enumerate\(dataloader\)|^data([ _]?(load|fetch|wait|time))?$|^dataloader') AS data
FROM plain;
