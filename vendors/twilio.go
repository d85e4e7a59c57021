package vendors

import "github.com/resilienthttp/resilienthttp"

// Twilio is for twilio.com's APIs. It honours no keys. A 429 is never processed, and tried
// again, save where a verification has used up its attempts (60202, 60203, 60308, 60310):
// that passes in ten minutes at the earliest, or never.
//
// Sources, read 2026-11-20: https://www.twilio.com/docs/api/errors/20429,
// https://www.twilio.com/docs/api/errors/60202, https://www.twilio.com/docs/api/errors/60203,
// https://www.twilio.com/docs/api/errors/60308, https://www.twilio.com/docs/api/errors/60310.
func Twilio(hosts ...string) *resilienthttp.Transport {
	return profile{
		hosts: []string{"*.twilio.com"},
		verdict: func(_ *resilienthttp.Attempt, body []byte) resilienthttp.Verdict {
			switch parsed[struct {
				Code int `json:"code"`
			}](body).Code {
			case 60202, 60203, 60308, 60310:
				return resilienthttp.VerdictPermanent
			}
			return resilienthttp.VerdictDefault
		},
	}.transport(hosts)
}
