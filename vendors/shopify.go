package vendors

import "github.com/resilienthttp/resilienthttp"

// Shopify returns a Transport for the Admin APIs at *.myshopify.com. The API does not honour keys
// in a header. Some GraphQL mutations have a key in the body, as the directive
// @idempotent(key: …), which refunds and inventory adjustments need from version 2026-04 on. To
// permit retries, pass that key to resilienthttp.WithIdempotencyKey, as for [Square]. Each shop
// has its own host, and so its own scope and its own bucket, which X-Shopify-Shop-Api-Call-Limit
// advertises. GraphQL's THROTTLED has status 200 and is not retried.
//
// Sources, read 2026-11-20: https://shopify.dev/docs/api/admin-rest/usage/rate-limits,
// https://shopify.dev/docs/api/usage/limits; 2026-11-22:
// https://shopify.dev/docs/api/usage/implementing-idempotency,
// https://shopify.dev/changelog/making-idempotency-mandatory-for-inventory-adjustments-and-refund-mutations.
func Shopify(hosts ...string) *resilienthttp.Transport {
	return profile{hosts: []string{"*.myshopify.com"}}.transport(hosts)
}
