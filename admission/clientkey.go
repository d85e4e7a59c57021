package admission

import (
	"net/netip"
	"strings"
)

// peer is whose request it is by the address that it came from: that of IPv4, and of
// IPv6 the first 64 bits, for anybody has so many of the others as he likes. What is
// no address, of a socket that has none say, stands for itself.
func clientKey(address string) string {
	if colon := strings.IndexByte(address, ':'); colon > 0 && strings.LastIndexByte(address, ':') == colon {
		return address[:colon] // IPv4, as net/http writes it
	}
	host, err := netip.ParseAddrPort(address)
	if err != nil {
		return address
	}
	ip := host.Addr().Unmap().WithZone("")
	if ip.Is4() {
		return ip.String()
	}
	prefix, err := ip.Prefix(64)
	if err != nil {
		return address
	}
	return prefix.String()
}
