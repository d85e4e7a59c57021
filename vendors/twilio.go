package vendors

import "github.com/resilienthttp/resilienthttp"

// Twilio returns a Transport for *.twilio.com. The APIs do not honour keys. A request with a 429
// was not executed and is retried, except if a verification has no attempts left (60202, 60203,
// 60308, 60310): that takes ten minutes or more, or does not pass.
//
// Sources, read 2026-11-20: https://www.twilio.com/docs/api/errors/20429,
// https://www.twilio.com/docs/api/errors/60202, https://www.twilio.com/docs/api/errors/60203,
// https://www.twilio.com/docs/api/errors/60308, https://www.twilio.com/docs/api/errors/60310.
func Twilio(hosts ...string) *resilienthttp.Transport {
	return profile{
		hosts: []string{"*.twilio.com"},
		verdict: func(_ *resilienthttp.Attempt, body []byte) resilienthttp.Verdict {
			switch parse[struct {
				Code int `json:"code"`
			}](body).Code {
			case 60202, 60203, 60308, 60310:
				return resilienthttp.VerdictPermanent
			}
			return resilienthttp.VerdictDefault
		},
	}.transport(hosts)
}
