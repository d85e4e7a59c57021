package ratelimitheader

import "strings"

// part is what a value says about its quota, or about all quotas of the response.
type part uint8

const (
	nothing part = iota
	partLimit
	partRemaining
	partUsed // Reddit sends it instead of the limit
	partReset
	partResetTime // GitLab sends it beside the reset, for the same moment
	partWindow
	partInterval // HubSpot's window in milliseconds, which is also its reset
	partUsage    // Shopify's used count and limit
	partUnit
	partCost // what this request took
	partPartition

	// The parts of several quotas, or of all.
	partMembers  // of RateLimit and RateLimit-Policy
	partPoints   // members that count points: Atlassian's
	partEndpoint // Zendesk's quota of an endpoint
	partBucket
	partBucketPerID
	partGlobal
)

// mayLimit reports whether a field begins as those of the table do. It is called for each field of each response.
func mayLimit(field string) bool {
	switch field[:min(len(field), 4)] {
	case "Anth", "Beta", "Rate", "X-Ap", "X-Hu", "X-Ra", "X-Sh", "X-Us", "Zend":
		return true
	}
	return false
}

// meaning is the meaning of a field: a part, and the name of the quota.
type meaning struct {
	part part
	name string
}

// The names of the quotas that have none in their fields.
const (
	custom   = ""          // of X-RateLimit-
	standard = "ratelimit" // of RateLimit-
)

// meaningOf is the table of the fields. "Limit", or "limit", is the last word of what is before the
// part and the name of the quota. Its "m" is the first one of each field in the table: another field would need a
// case of its own before. A new field begins as one of mayLimit does.
func meaningOf(field string) meaning {
	i := min(strings.IndexByte(field, 'm')+len("mit"), len(field))
	suffix := strings.TrimPrefix(field[i:], "-")
	switch field[:i] {
	case "X-Ratelimit", "X-Rate-Limit":
		switch suffix {
		case "": // Zendesk
			return meaning{partLimit, custom}
		case "Reset-After": // Discord's has milliseconds and needs no clock, and is read after its Reset
			return meaning{partReset, custom}
		case "Resource": // GitHub
			return meaning{part: partBucket}
		case "Bucket": // Discord
			return meaning{part: partBucketPerID}
		case "Global", "Scope": // Discord
			return meaning{part: partGlobal}
		}
		return named(suffix)
	case "Ratelimit":
		switch suffix {
		case "", "Policy":
			return meaning{partMembers, standard}
		case "Name": // GitLab
			return meaning{part: partBucket}
		}
		return meaning{partOf(suffix), standard}
	case "Beta-Ratelimit": // also Beta-RateLimit-Policy
		return meaning{part: partPoints}
	case "Anthropic-Ratelimit":
		return named(suffix)
	case "X-App-Limit":
		return meaning{partOf(strings.TrimPrefix(suffix, "24hour-")), "app-24hour"}
	case "X-User-Limit":
		return meaning{partOf(strings.TrimPrefix(suffix, "24hour-")), "user-24hour"}
	case "X-Hubspot-Ratelimit":
		switch suffix {
		case "Daily": // this quota has no reset, but may be exhausted
			return meaning{partLimit, "daily"}
		case "Daily-Remaining":
			return meaning{partRemaining, "daily"}
		}
		return meaning{partOf(suffix), custom}
	case "Zendesk-Ratelimit":
		return meaning{partEndpoint, suffix}
	case "X-Shopify-Shop-Api-Call-Limit":
		return meaning{partUsage, custom}
	}
	return meaning{}
}

// named returns the meaning of the suffix Remaining-Tokens, as OpenAI has it, or Tokens-Remaining, as
// Anthropic and RapidAPI have it.
func named(suffix string) meaning {
	word, name, _ := strings.Cut(suffix, "-")
	if part := partOf(word); part != nothing {
		return meaning{part, name}
	}
	last := strings.LastIndexByte(suffix, '-')
	return meaning{partOf(suffix[last+1:]), suffix[:max(last, 0)]}
}

// partOf is the table of the parts, by the word of a field's name or the key of a parameter.
func partOf(key string) part {
	switch key {
	case "Limit", "Max", "limit", "total", "q":
		return partLimit
	case "Remaining", "remaining", "r", "a": // a, w and c are in the IETF draft's open change
		return partRemaining
	case "Used":
		return partUsed
	case "Reset", "reset", "resets", "t":
		return partReset
	case "Resettime":
		return partResetTime
	case "w", "window": // the second one before draft -03
		return partWindow
	case "Interval-Milliseconds":
		return partInterval
	case "c":
		return partCost
	case "qu":
		return partUnit
	case "pk":
		return partPartition
	}
	return nothing
}
