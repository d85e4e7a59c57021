-- Blocks KEYS[1] for ARGV[1] microseconds.
local length = tonumber(ARGV[1])
state[2] = math.max(state[2], now + length)
store(state, math.max(state[2] - now, redis.call('PTTL', KEYS[1]) * 1000))
return 1
