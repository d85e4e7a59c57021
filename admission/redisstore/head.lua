-- The beginning of both scripts: the time, and the state of the key. Numbers are doubles
-- here. All of them are whole, and below 2^53 where they must be exact. Times are
-- microseconds of the server's clock.
--
-- The value of a key is "kind blocked at ...": the kind, the end of the block, the time of
-- the last write, and then "used part" for a bucket (kind 0) or "last units last units ..."
-- for a sliding window (kind 1). They work as quotastore's bucket and window.
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

local state = {}
local stored = redis.call('GET', KEYS[1])
if stored then
  for number in string.gmatch(stored, '%d+') do
    state[#state + 1] = tonumber(number)
  end
end
if #state < 5 then
  state = {0, 0, now, 0, 0}
end

-- A clock that was set back adds nothing, and the key continues from its new time.
local back = now < state[3]
if back then
  state[2] = math.max(state[2] - (state[3] - now), 0)
  state[3] = now
  if state[1] == 1 then
    for i = 4, #state, 2 do
      state[i] = math.min(state[i], now)
    end
  end
end

local function store(numbers, microseconds)
  local words = {}
  for i, number in ipairs(numbers) do
    words[i] = string.format('%.0f', number)
  end
  redis.call('SET', KEYS[1], table.concat(words, ' '), 'PX', string.format('%.0f', math.ceil(microseconds / 1000) + 1))
end
