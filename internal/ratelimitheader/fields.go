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

// mayLimit reports whether a field may be in the table. It is called for each field of each response.
func mayLimit(field string) bool { return strings.Contains(field, "imit") }

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

// meaningOf is the table of the fields, by what is before the part and the name of the quota. A vendor that is not in the table
// writes its own name before, and means the same as X.
func meaningOf(field string) meaning {
	head, suffix := cutLimit(field)
	switch head {
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
	return ofVendor(head, suffix)
}

// cutLimit cuts a field behind the word that its vendor has for the limit. A vendor's name may have a "limit" of its own, and
// the part behind may be one too.
func cutLimit(field string) (head, suffix string) {
	for _, word := range [...]string{"Ratelimit", "-Limit"} {
		if before, after, ok := strings.Cut(field, word); ok {
			return field[:len(before)+len(word)], strings.TrimPrefix(after, "-")
		}
	}
	return field, ""
}

// ofVendor returns the meaning of a field with a vendor's name. Its quotas are named by the vendor, because a gateway in front may
// have some of its own.
func ofVendor(head, suffix string) meaning {
	for _, word := range [...]string{"-Ratelimit", "-Rate-Limit"} {
		vendor, ok := strings.CutSuffix(head, word)
		if !ok {
			continue
		}
		m := named(suffix)
		if m.name != "" {
			vendor += "-" + m.name
		}
		return meaning{m.part, vendor}
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
