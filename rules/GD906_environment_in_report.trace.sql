SELECT rank, regexp_extract(path, '[^/\\]*$') AS file, path AS group_key, secrets AS count, env_vars
FROM capture WHERE kind = 'nsys' AND secrets > 0
ORDER BY path
