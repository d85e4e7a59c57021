package frameworks

import (
	"context"
	"net/http"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
)

// echo writes the error of a handler after all middleware has returned, unless a middleware writes
// it. So echoOnce writes it, to be around the whole response.
func (s *service) echo() http.Handler {
	e := echo.New()
	e.Use(middleware.Recover(), echo.WrapMiddleware(authenticate))
	e.POST("/charges", s.echoCharge, echoOnce(s, "charge"))
	return e
}

func (s *service) echoCharge(c echo.Context) error {
	var o order
	if err := c.Bind(&o); err != nil {
		return err
	}
	done, err := s.charge(o)
	if err != nil {
		return echo.NewHTTPError(statusOf(err), err.Error())
	}
	return c.JSON(http.StatusCreated, done)
}

type echoKey struct{}

// echoOnce is middleware for one route. Do not use echo.WrapMiddleware instead: it writes the error
// after the execution, so the response would be the problem no-response.
func echoOnce(s *service, operation string) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		h := s.once(operation, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c := r.Context().Value(echoKey{}).(echo.Context) //nolint:errcheck // set below
			request, response := c.Request(), c.Response()
			defer func() { c.SetRequest(request); c.SetResponse(response) }()
			c.SetRequest(r)
			c.SetResponse(echo.NewResponse(w, c.Echo()))
			if err := next(c); err != nil {
				c.Error(err)
			}
		}))
		return func(c echo.Context) error {
			r := c.Request()
			h.ServeHTTP(c.Response(), r.WithContext(context.WithValue(r.Context(), echoKey{}, c)))
			return nil
		}
	}
}
