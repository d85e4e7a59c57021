-- The operations of the store. ARGV[1] is the operation, ARGV[2] the joined names of the record. KEYS: the record (or
-- the prefix of all), the sorted sets by expiry, by lease and of unknown records, the format. Times are milliseconds by
-- the server's clock. A record is returned as a list: the fields as in read, then its names.
local IN_PROGRESS, FAILED_RETRYABLE, UNKNOWN, REEXECUTE, RESUME = '1', '3', '6', '1', '2'
local key, names, clock, operations = KEYS[1], ARGV[2], redis.call('TIME'), {}
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

-- read returns a record, or false, and its list.
local function read(key, names)
  local list = redis.call('HMGET', key, 'status', 'takeover', 'generation', 'lease', 'started', 'updated', 'expires', 'fingerprint',
    'owner', 'result', 'body', 'call')
  list[13] = names
  if not list[1] then return false, list end
  local r = {status = list[1], takeover = list[2], generation = list[3], lease = tonumber(list[4]), started = tonumber(list[5]),
    expires = tonumber(list[7]), fingerprint = list[8], owner = list[9], call = list[12]}
  r.repeats = r.takeover == REEXECUTE or r.takeover == RESUME
  r.lapsed = r.status == IN_PROGRESS and now >= r.lease
  r.expired = now >= r.expires and r.status ~= UNKNOWN and (r.status ~= IN_PROGRESS or r.lapsed and r.repeats)
  return r, list
end

-- place returns the one sorted set where Sweep, Reap or Unknown finds a record, and its score there.
local function place(r)
  if r.status == UNKNOWN then return KEYS[4], 0 end
  if r.status ~= IN_PROGRESS then return KEYS[2], r.expires end
  if r.repeats then return KEYS[2], math.max(r.lease, r.expires) end
  return KEYS[3], r.lease
end

-- write sets fields of a record, which was in the sorted set before. ZREM is first: Redis stops a script for lack of memory
-- only at its first write, and ZREM needs none. So an execution that was admitted can be completed when memory is full.
local function write(key, names, before, r, ...)
  local set, score = place(r)
  redis.call('ZREM', before, names)
  redis.call('ZADD', set, score, names)
  redis.call('HSET', key, 'status', r.status, 'updated', now, ...)
end

local function mark_unknown(key, names, r)
  local before = place(r)
  r.status = UNKNOWN
  write(key, names, before, r, 'owner', '', 'generation', r.generation + 1)
  return select(2, read(key, names))
end

-- check returns the format and the eviction policy, each if known.
function operations.check()
  local info = redis.pcall('INFO', 'memory')
  return {redis.call('GET', KEYS[5]), type(info) == 'string' and string.match(info, 'maxmemory_policy:([%w-]+)') or ''}
end

-- claim is idempotency.Decide with its step. It returns Decision, Resumed, LeaseExpired and the record.
function operations.claim()
  local fingerprint, owner, lease, ttl, takeover = unpack(ARGV, 3)
  local r, list = read(key, names)
  local same = r and fingerprint == r.fingerprint
  if not r or r.expired or same and (r.status == FAILED_RETRYABLE or r.lapsed and r.repeats) then
    -- HSET is first: a server that is full or read-only rejects it, and nothing has changed.
    local new = {status = IN_PROGRESS, repeats = takeover == REEXECUTE or takeover == RESUME, lease = now + lease, expires = now + ttl}
    redis.call('HSET', key, 'status', IN_PROGRESS, 'fingerprint', fingerprint, 'owner', owner, 'takeover', takeover,
      'started', now, 'updated', now, 'lease', new.lease, 'expires', new.expires)
    redis.call('HINCRBY', key, 'generation', 1)
    if r then
      redis.call('HDEL', key, 'result', 'body', 'call')
      redis.call('ZREM', place(r), names)
    end
    local set, score = place(new)
    redis.call('ZADD', set, score, names)
    redis.call('SETNX', KEYS[5], 1)
    return {1, r and not r.expired and r.takeover == RESUME and 1 or 0, 0, select(2, read(key, names))}
  end
  if not same then return {4, 0, 0, list} end
  if r.lapsed then return {5, 0, 1, mark_unknown(key, names, r)} end
  if r.status == IN_PROGRESS then return {r.owner == owner and 1 or 2, 0, 0, list} end
  return {(r.status == '2' or r.status == '4' or r.status == '5') and 3 or 5, 0, 0, list}
end

-- update is Renew, Complete and Release. It returns 0 if the lease is lost. lease is of Renew; ttl, of Complete, may be
-- 0; call is new for each call, because a client repeats the command if a reply was lost.
function operations.update()
  local owner, generation, call, status, lease, ttl = unpack(ARGV, 3, 8)
  local r = read(key, names)
  local held = r and not r.expired and r.owner == owner and r.generation == generation
  if held and r.call == call then return {1} end
  if not held or r.status ~= IN_PROGRESS and (r.status ~= UNKNOWN or status == IN_PROGRESS or status == UNKNOWN) then
    return {0}
  end
  local before = place(r)
  if status == IN_PROGRESS then
    r.lease = now + lease
  elseif ttl ~= '0' then
    r.expires = now + ttl
  elseif r.status == UNKNOWN and status ~= FAILED_RETRYABLE then
    r.expires = now + r.expires - r.started
  end
  r.status = status
  write(key, names, before, r, 'lease', r.lease, 'expires', r.expires, 'call', call, unpack(ARGV, 9))
  return {1}
end

function operations.load()
  local r, list = read(key, names)
  return r and not r.expired and list or {}
end

function operations.reap()
  local reaped = {}
  for _, names in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now, 'LIMIT', 0, ARGV[3])) do
    local r = read(key .. names, names)
    reaped[#reaped + 1] = r and mark_unknown(key .. names, names, r) or nil -- an operator may have deleted it
    redis.call('ZREM', KEYS[3], names)
  end
  return reaped
end

function operations.unknown()
  local page = redis.call('ZRANGEBYLEX', KEYS[4], ARGV[3], ARGV[4], 'LIMIT', 0, ARGV[5])
  for i, names in ipairs(page) do page[i] = select(2, read(key .. names, names)) end
  return page
end

function operations.sweep()
  local expired = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now, 'LIMIT', 0, ARGV[3])
  for _, names in ipairs(expired) do
    redis.call('UNLINK', key .. names)
    redis.call('ZREM', KEYS[2], names)
  end
  return expired
end

return operations[ARGV[1]]()
