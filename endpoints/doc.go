// Package endpoints sends calls to a list of base URLs: regions, mirrors, deployments, or one API
// with several keys. A call uses the first endpoint that works. It moves on only if that cannot do
// the work twice.
//
//	client := &http.Client{Transport: &endpoints.Transport{
//		Endpoints: []endpoints.Endpoint{{Name: "eu", URL: eu}, {Name: "us", URL: us}},
//	}}
//	resp, err := client.Get(eu.String() + "/orders/17")
//
// Requests name the URL of the first endpoint. The list is inside of the call: there is one
// deadline, one idempotency key, one [resilienthttp.Call] and one error, with all attempts. Each
// endpoint has a breaker, a retry budget, quotas and latencies of its own.
//
//   - A GET, a PUT and every other idempotent method may go to any endpoint.
//   - A POST goes to another endpoint only if the first one certainly executed nothing: it refused the
//     connection, for example, or responded 421, 425, 429, or any failure with Request-Executed: ?0. A 503
//     with Retry-After proves nothing, because proxies send it after the work too. A should-retry header
//     permits a retry at the same endpoint only. With SharedKeys, a POST that has an idempotency key moves
//     like a GET.
//
// A request for a URL below no endpoint passes unchanged. See docs/endpoints.md.
package endpoints
