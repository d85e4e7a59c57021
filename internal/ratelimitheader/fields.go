package ratelimitheader

import "strings"

// part is what a field says about a quota, or about all quotas of the response.
type part uint8

const (
	nothing part = iota

	// Lists of quotas and of policies, which are parsed after all fields are read.
	partList
	partPolicies
	partPoints // Atlassian's, in the form of the IETF's current draft
	partPointPolicies
	lists

	// Parts of a quota.
	partLimit
	partRemaining
	partUsed // Reddit sends it instead of the limit
	partReset
	partUsage    // Shopify's limit and remaining count in one value
	partInterval // HubSpot's window, in milliseconds
	partEndpoint // Zendesk's whole quota in one value

	// Parts of the state.
	partBucket
	partBucketPerID
	partGlobal
	parts
)

// form is a form of field names. The quotas of a response are in the order of their forms.
type form uint8

const (
	formCustom    form = iota // X-RateLimit-Remaining
	formStandard              // RateLimit-Remaining
	formNamed                 // X-RateLimit-Remaining-Tokens: OpenAI, Azure OpenAI, Groq, Cerebras; also X-RateLimit-Day-Remaining
	formAnthropic             // Anthropic-RateLimit-Tokens-Remaining
	formAlone                 // Shopify's and HubSpot's quotas, which have a name only beside another unnamed one
	formZendesk
	formOther
	formList // of a list
)

// meaning is the meaning of a field.
type meaning struct {
	part part
	rank uint8 // of several fields with one meaning, the valid one with the highest rank counts
	form form
	name string // of the quota, in any letter case
}

// meaningOf is the table of all fields. The zero meaning is that of all others. It is called for
// each field of each response, and most begin with another letter.
func meaningOf(name string) meaning {
	switch name[:min(len(name), 1)] {
	case "X":
		return meaningOfX(name)
	case "R":
		switch name {
		case "Ratelimit":
			return meaning{part: partList}
		case "Ratelimit-Policy":
			return meaning{part: partPolicies}
		case "Ratelimit-Name":
			return meaning{part: partBucket}
		case "Ratelimit-Resettime": // GitLab sends both resets, for the same moment
			return meaning{part: partReset, form: formStandard}
		}
		if suffix, ok := strings.CutPrefix(name, "Ratelimit-"); ok {
			return meaning{part: partOf(suffix), rank: 1, form: formStandard}
		}
	case "A":
		if suffix, ok := strings.CutPrefix(name, "Anthropic-Ratelimit-"); ok {
			return named(suffix, formAnthropic, 0)
		}
	case "B":
		switch name {
		case "Beta-Ratelimit":
			return meaning{part: partPoints}
		case "Beta-Ratelimit-Policy":
			return meaning{part: partPointPolicies}
		}
	case "Z":
		if suffix, ok := strings.CutPrefix(name, "Zendesk-Ratelimit-"); ok {
			return withName(meaning{part: partEndpoint, form: formZendesk, name: suffix})
		}
	}
	return meaning{}
}

func meaningOfX(name string) meaning {
	switch name[:min(len(name), 6)] {
	case "X-Rate":
		if suffix, ok := strings.CutPrefix(name, "X-Ratelimit-"); ok {
			return custom(suffix, 2)
		}
		// Azure OpenAI mixes both spellings (https://github.com/openai/openai-python/issues/937).
		if suffix, ok := strings.CutPrefix(name, "X-Rate-Limit-"); ok {
			return custom(suffix, 1)
		}
	case "X-App-":
		if suffix, ok := strings.CutPrefix(name, "X-App-Limit-24hour-"); ok {
			return meaning{part: partOf(suffix), form: formOther, name: "app-24hour"}
		}
	case "X-User":
		if suffix, ok := strings.CutPrefix(name, "X-User-Limit-24hour-"); ok {
			return meaning{part: partOf(suffix), form: formOther, name: "user-24hour"}
		}
	}
	switch name {
	case "X-Rate-Limit": // Zendesk
		return meaning{part: partLimit, form: formCustom}
	case "X-Shopify-Shop-Api-Call-Limit":
		return meaning{part: partUsage, form: formAlone, name: "shopify"}
	case "X-Hubspot-Ratelimit-Max":
		return meaning{part: partLimit, form: formAlone, name: "hubspot"}
	case "X-Hubspot-Ratelimit-Remaining":
		return meaning{part: partRemaining, form: formAlone, name: "hubspot"}
	case "X-Hubspot-Ratelimit-Interval-Milliseconds":
		return meaning{part: partInterval, form: formAlone, name: "hubspot"}
	case "X-Hubspot-Ratelimit-Daily": // this quota has no reset
		return meaning{part: partLimit, form: formOther, name: "daily"}
	case "X-Hubspot-Ratelimit-Daily-Remaining":
		return meaning{part: partRemaining, form: formOther, name: "daily"}
	}
	return meaning{}
}

// custom returns the meaning of X-RateLimit- and suffix.
func custom(suffix string, rank uint8) meaning {
	switch suffix {
	case "Limit", "Remaining", "Used", "Reset":
		return meaning{part: partOf(suffix), form: formCustom, rank: rank}
	case "Reset-After": // Discord's is more exact than its Reset: it has milliseconds and needs no clock
		return meaning{part: partReset, form: formCustom, rank: rank + 2}
	case "Resource": // GitHub
		return meaning{part: partBucket, rank: rank}
	case "Bucket": // Discord
		return meaning{part: partBucketPerID, rank: rank + 2}
	case "Global", "Scope":
		return meaning{part: partGlobal}
	}
	return named(suffix, formNamed, rank)
}

// named returns the meaning of the suffix Remaining-Tokens or Tokens-Remaining.
func named(suffix string, form form, rank uint8) meaning {
	word, name, _ := strings.Cut(suffix, "-")
	if partOf(word) != nothing {
		return withName(meaning{part: partOf(word), form: form, name: name, rank: rank + 2})
	}
	i := max(strings.LastIndexByte(suffix, '-'), 0)
	return withName(meaning{part: partOf(strings.TrimPrefix(suffix[i:], "-")), form: form, name: suffix[:i], rank: rank})
}

// withName returns m if it has a part and a name.
func withName(m meaning) meaning {
	if m.part == nothing || m.name == "" || len(m.name) > MaxName {
		return meaning{}
	}
	return m
}

func partOf(word string) part {
	switch word {
	case "Limit":
		return partLimit
	case "Remaining":
		return partRemaining
	case "Used":
		return partUsed
	case "Reset":
		return partReset
	}
	return nothing
}
