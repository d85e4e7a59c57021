package vendors

import "github.com/resilienthttp/resilienthttp"

// Shopify is for the Admin APIs at *.myshopify.com. It honours no keys. Each shop is a
// scope, since its host is, and has a bucket of its own, which X-Shopify-Shop-Api-Call-Limit
// tells of. GraphQL's THROTTLED comes with status 200, and is yours to read.
//
// Sources, read 2026-11-20: https://shopify.dev/docs/api/admin-rest/usage/rate-limits,
// https://shopify.dev/docs/api/usage/limits.
func Shopify(hosts ...string) *resilienthttp.Transport {
	return profile{hosts: []string{"*.myshopify.com"}}.transport(hosts)
}
