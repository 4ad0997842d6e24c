console.log("this never runs");
