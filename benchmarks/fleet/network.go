package fleet

import (
	"net/http"
	"time"
)

// overNetwork sends an attempt to the server and waits for its response. The server does not
// learn that the client has left, so it receives and does all requests.
func (s *server) overNetwork(req *http.Request, v attempt) (*http.Response, error) {
	var result Response
	var header http.Header
	received := &job{done: make(chan struct{}, 1)}
	mean := s.scenario.Server.Network
	there := s.random.exponential(mean, v.call, v.attempt, drawThere)
	back := s.random.exponential(mean, v.call, v.attempt, drawBack)
	time.AfterFunc(there, func() {
		v.at += there
		var j *job
		result, header, j = s.arrive(v)
		if j != nil {
			<-j.done
		}
		time.AfterFunc(result.After+back, func() { received.done <- struct{}{} })
	})
	if err := s.wait(req.Context(), Response{}, received); err != nil {
		return nil, err
	}
	if result.Err != nil {
		return nil, result.Err
	}
	return respond(req, result.Status, header), nil
}

// serviceOf is the service time of a request, which is known when it arrives.
func (s *server) serviceOf(v attempt) time.Duration {
	service := s.scenario.Server.service()
	for _, p := range s.scenario.Server.Paces {
		if v.at >= p.From && v.at < p.To {
			service = p.Service
			break
		}
	}
	if s.scenario.Server.Exponential {
		return s.random.exponential(service, v.call, v.attempt, drawService)
	}
	return service
}

// crowded is the service time in a server with unlimited workers, which PerRequest makes
// longer for each request that is in it. The server is locked.
func (s *server) crowded(v attempt) time.Duration {
	s.inside++
	service := s.serviceOf(v) + time.Duration(s.inside)*s.scenario.Server.PerRequest
	time.AfterFunc(service, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.inside--
	})
	return service
}
