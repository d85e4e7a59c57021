-- Takes from KEYS[1]. ARGV: want, min, limit, window in microseconds, capacity, and 1 for a
-- sliding window. The reply: ok, allowed, remaining, reset after, retry after.
local want, min_units = tonumber(ARGV[1]), tonumber(ARGV[2])
local limit, window, capacity = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local sliding = ARGV[6] == '1'
local max_wait = 9e15 -- 285 years

-- Returns the quotient and the remainder of a × b / d, exactly: digit by digit of a, to the
-- base 128. b and d are at most 2^45.
local function muldiv(a, b, d)
  if a * b < 2 ^ 53 then
    local rest = math.fmod(a * b, d)
    return (a * b - rest) / d, rest
  end
  local quotient, rest, scale = 0, 0, 1
  while a / scale >= 128 do
    scale = scale * 128
  end
  while scale >= 1 do
    local digit = math.floor(a / scale)
    a = a - digit * scale
    local part = rest * 128 + digit * b
    rest = math.fmod(part, d)
    quotient = quotient * 128 + (part - rest) / d
    scale = scale / 128
  end
  return quotient, rest
end

-- bucket and window_ return four functions: take() returns the number of units taken, or nil
-- for a rejection; used() the units in use; wait(units) the time until so many are left; and
-- numbers() the state to store.
local function bucket()
  local used, part, at = state[4], state[5], state[3]
  if state[1] == 1 then -- the rule was a window before
    used, part = 0, 0
    for i = 5, #state, 2 do
      used = used + state[i]
    end
  end
  if now > at and used > 0 then
    local units, rest = muldiv(now - at, limit, window)
    part = part + rest
    if part >= window then
      part, units = part - window, units + 1
    end
    used = used - units
  end
  if used <= 0 then
    used, part = 0, 0
  end
  used, part = math.min(used, capacity), math.min(part, window - 1)

  local function take()
    local taken
    if want < 0 then
      taken = math.max(want, -used)
    elseif capacity - used < min_units then
      return nil
    else
      taken = math.min(want, capacity - used)
    end
    used = used + taken
    if used == 0 then
      part = 0
    end
    return taken
  end
  local function wait(units)
    local missing = units - (capacity - used)
    if missing <= 0 then
      return 0
    end
    local time, rest = muldiv(missing, window, limit)
    local less = math.fmod(part, limit)
    time, rest = time - (part - less) / limit, rest - less
    if rest > 0 then
      time = time + 1
    end
    return math.min(time, max_wait)
  end
  return take, function() return used end, wait, function() return {0, state[2], now, used, part} end
end

local function window_()
  local slots, used, first = {}, 0, 4
  if state[1] == 0 then -- the rule was a bucket before
    state = {1, state[2], state[3], state[3], state[4]}
  end
  while state[first] and now - state[first] >= window do
    first = first + 2
  end
  for i = first, #state - 1, 2 do
    if state[i + 1] > 0 then
      slots[#slots + 1] = {math.min(state[i], now), state[i + 1]}
      used = used + state[i + 1]
    end
  end

  local function add(units)
    local newest, part = slots[#slots], math.floor(window / 64)
    used = used + units
    if newest and (newest[1] == now or #slots > 64 or
        limit > 64 and part > 0 and math.floor(newest[1] / part) == math.floor(now / part)) then
      newest[1], newest[2] = now, newest[2] + units
    else
      slots[#slots + 1] = {now, units}
    end
  end
  -- Removes units from the oldest takes, so that the remaining ones count for long enough.
  local function give_back(units)
    local given = 0
    while slots[1] and given < units do
      local some = math.min(units - given, slots[1][2])
      given, slots[1][2] = given + some, slots[1][2] - some
      if slots[1][2] == 0 then
        table.remove(slots, 1)
      end
    end
    used = used - given
    return -given
  end
  local function take()
    if want < 0 then
      return give_back(-want)
    elseif limit - used < min_units then
      return nil
    end
    local taken = math.min(want, math.max(limit - used, 0))
    if taken > 0 then
      add(taken)
    end
    return taken
  end
  local function wait(units)
    local missing = units - (limit - used)
    for _, slot in ipairs(slots) do
      if missing <= 0 then
        break
      end
      missing = missing - slot[2]
      if missing <= 0 then
        return slot[1] + window - now
      end
    end
    return 0
  end
  local function numbers()
    local all = {1, state[2], now}
    for _, slot in ipairs(slots) do
      all[#all + 1], all[#all + 2] = slot[1], slot[2]
    end
    return all
  end
  return take, function() return used end, wait, numbers
end

local blocked = math.max(state[2] - now, 0)
if blocked > 0 and want > 0 then
  want = 0
end
local take, used, wait, numbers
if sliding then
  capacity = limit
  take, used, wait, numbers = window_()
else
  take, used, wait, numbers = bucket()
end
local taken = take()
local ok = taken ~= nil
local remaining, reset, retry = math.max(capacity - used(), 0), 0, 0
if used() > 0 then
  reset = wait(capacity)
end
if not ok then
  taken, retry = 0, wait(min_units)
end
if blocked > 0 then
  remaining, reset = 0, math.max(reset, blocked)
  if not ok or min_units > 0 then
    ok, retry = false, math.max(retry, blocked)
  end
end
if taken ~= 0 or back then
  if reset > 0 then
    store(numbers(), reset)
  else
    redis.call('DEL', KEYS[1])
  end
end
return {ok and 1 or 0, taken, remaining, reset, retry}
