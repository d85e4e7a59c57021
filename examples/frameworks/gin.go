package frameworks

import (
	"net/http"

	"github.com/gin-gonic/gin"
)

// gin has no next handler that can be wrapped, so the idempotent routes have an engine of their own,
// inside. It gets data in the request's context. It must write errors itself, because gin sends
// 200 if nothing was written.
func (s *service) gin() http.Handler {
	inside := gin.New()
	inside.Use(renderErrors)
	inside.POST("/charges", s.ginCharge)

	engine := gin.New()
	engine.Use(gin.Recovery(), ginAuthenticate)
	engine.POST("/charges", gin.WrapH(s.once("charge", inside)))
	return engine
}

func (s *service) ginCharge(c *gin.Context) {
	var o order
	if err := c.ShouldBindJSON(&o); err != nil {
		c.AbortWithStatusJSON(http.StatusBadRequest, gin.H{"message": err.Error()})
		return
	}
	done, err := s.charge(o)
	if err != nil {
		_ = c.Error(err)
		return
	}
	c.JSON(http.StatusCreated, done)
}

// renderErrors writes the error of a handler that has written nothing.
func renderErrors(c *gin.Context) {
	c.Next()
	if err := c.Errors.Last(); err != nil && !c.Writer.Written() {
		c.JSON(statusOf(err), gin.H{"message": err.Error()})
	}
}

// ginAuthenticate is authenticate as a gin middleware.
func ginAuthenticate(c *gin.Context) {
	passed := false
	authenticate(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		passed, c.Request = true, r
		c.Next()
	})).ServeHTTP(c.Writer, c.Request)
	if !passed {
		c.Abort()
	}
}
